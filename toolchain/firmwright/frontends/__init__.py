"""Frontends: conversion of model files to IR modules."""
